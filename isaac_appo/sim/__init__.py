"""Physics engines behind one contract (`engine.py`)."""
