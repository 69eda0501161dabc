"""Models and outputs of somebody else: files that are loaded and asked, tables that an owner sends."""
