"""Tables and figures of finished runs beside the paper's: gathered, compared, laid out, drawn, written down.

Reads records and run folders and starts no run: that is for the package above.
"""
