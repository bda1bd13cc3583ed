"""How values of the core look in a notebook."""
