"""Is the output really the target's, here: these files, this build, this machine?"""
