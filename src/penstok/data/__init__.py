"""Reading finished tokens back."""
