"""Tools that know nothing of learning: errors, files, words, settings, locks, interrupts, what a terminal shows.

Everything may import them; they import nothing of PALS but each other. A line that names labels, pictures or methods belongs
further down.
"""
