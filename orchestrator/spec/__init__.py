"""What is asked: specifications from flags and files, their fields, and the configs that they come to."""
