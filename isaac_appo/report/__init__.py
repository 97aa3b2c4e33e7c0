"""What a run tells people: console, TensorBoard, CSV, curve, and the directory in which everything lies."""
