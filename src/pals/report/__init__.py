"""Tables and pictures of finished runs: read from run folders, never from the code that made them."""
