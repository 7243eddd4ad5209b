"""The commands that show a changing view: `top` in the terminal, `dashboard` in the browser."""
