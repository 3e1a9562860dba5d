"""General tools, independent of learning: errors, files, words, settings, locks, interrupts, terminal output.

Everything may import them; they import nothing of PALS but each other. A line that names labels, pictures or methods belongs
further down.
"""
