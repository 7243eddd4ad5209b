"""elasticd keeps a PyTorch training run going while machines come and go.

The names that a training script uses stand here and nothing else; importing them is cheap.
"""

__all__ = ["__version__"]

__version__ = "0.1.0"
