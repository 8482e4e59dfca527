"""Jobs: what is asked, which units that is, and the main line that runs them."""
