"""Templates, styles and scripts of the page, and the code that renders them.

No script or style stands in a page itself, so that the browser runs none that is injected; there is no build step and no file
from elsewhere. Colours and letters are the report's (`report/templates/base.css`).
"""
