"""Does speculation pay here, for which kind of text, with which settings?"""
