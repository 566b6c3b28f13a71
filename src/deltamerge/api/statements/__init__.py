"""What `deltamerge.sql` runs itself: a module for each family of statements, functions from an AST to a frame."""
