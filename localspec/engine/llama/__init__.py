"""libllama behind checked calls: the only package that imports llama_cpp."""
