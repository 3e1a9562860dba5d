"""How the page looks: templates, styles and scripts, and what puts them together.

No script or style stands in a page itself, so that the browser can be told to run none; no build step, nothing from elsewhere.
Colours and letters are the report's (`report/templates/base.css`).
"""
