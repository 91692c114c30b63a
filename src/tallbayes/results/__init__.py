"""Results and what people ask of them."""
