"""External models: files that are loaded and asked, and tables of outputs that an owner sends."""
