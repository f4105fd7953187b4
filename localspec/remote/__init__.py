"""Another machine's OpenAI-compatible server as the engine: llama-server, vLLM, or `localspec serve`."""

from localspec.remote.client import is_url, open_remote

__all__ = ["is_url", "open_remote"]
