"""What is asked: specifications from flags and files, their fields, and the resulting configs."""
