"""A run, from settings to a folder: settings and their defaults, the folder, and the code that puts the parts together.

`run_config` holds the settings, `published_settings` their defaults by data set and method, `run_folder` what is written where,
`extractor` pretrained networks, `feature_cache` their features, `run` the run itself. Nothing here depends on what runs are
used for (`pipeline`, `bench`) or on the command line.
"""
