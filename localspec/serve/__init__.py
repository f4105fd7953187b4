"""`localspec serve`: the loaded pair behind OpenAI-compatible HTTP.

starlette and uvicorn (the extra `server`) are only imported in `app`, `streaming` and `run`.
"""
