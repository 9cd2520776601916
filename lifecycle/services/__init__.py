"""Floor 3, the live half: hooks, prompt, the model seam, tools, cancellation."""
