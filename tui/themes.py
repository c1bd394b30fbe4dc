"""Make the colours of every theme readable. Knows no widgets.

Several of Textual's themes, especially the light ones, have text colours below the contrast that
WCAG 2.2 requires (4.5 for text, 3 for frames). These are darkened or lightened until they meet it.
"""

from textual.color import BLACK, WHITE, Color

_LEAST_CONTRAST = 5.2  # also on the tint under code
_NAMES = ("primary", "secondary", "accent", "success", "warning", "error")


def readable(variables: dict[str, str]) -> dict[str, str]:
    """Return a theme's variables with readable `text-primary`, `text-accent` and so on.

    Frames use these colours too. Themes that use the terminal's own colours are not changed.
    """
    background = Color.parse(variables["background"])
    if background.ansi is not None:
        return variables
    changed = {f"text-{name}": variables[f"text-{name}"] for name in _NAMES}
    return variables | {
        name: _against(Color.parse(value), background).hex for name, value in changed.items()
    }


def _against(color: Color, background: Color) -> Color:
    """Return the colour, darker or lighter if the background requires it."""
    end = WHITE if _luminance(background) < 0.18 else BLACK
    for percent in range(0, 100, 4):
        blended = color.blend(end, percent / 100)
        lights = sorted((_luminance(blended), _luminance(background)))
        if (lights[1] + 0.05) / (lights[0] + 0.05) >= _LEAST_CONTRAST:
            return blended
    return end


def _luminance(color: Color) -> float:
    """Return the relative luminance of WCAG 2.2."""
    linear = [
        value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4
        for value in color.normalized
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
