"""localspec: speculative decoding on llama.cpp, measured and checked on your own machine."""

__version__ = "0.1.0"
