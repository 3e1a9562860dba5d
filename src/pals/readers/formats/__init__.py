"""One file per format of annotations: each turns a `Source` into a `Table` of what people answered.

What a format means is said here and nowhere else; how tables become `Votes` is in the package above.
"""
