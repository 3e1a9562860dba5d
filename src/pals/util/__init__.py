"""General tools, independent of learning: errors, files, words, settings, locks, interrupts, terminal output.

All packages may import them; they import only each other. Code that knows of labels, images or methods belongs to a package
further down.
"""
