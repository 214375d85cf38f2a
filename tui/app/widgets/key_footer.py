"""The line of keys at the bottom of a screen."""

from textual.widgets import Footer


class KeyFooter(Footer):
    """Textual's footer, rebuilt only if its keys change.

    A screen announces changed keys whenever the focus moves or data arrives, mostly without a real change,
    and a footer is a dozen widgets.
    """

    def __init__(self) -> None:
        super().__init__(show_command_palette=False)
        self._drawn: list[tuple[object, ...]] = []

    async def recompose(self) -> None:
        """Show the current keys of the screen, unless the screen has been left."""
        if not self.is_attached:
            return
        now: list[tuple[object, ...]] = [
            (active.binding, active.enabled, active.tooltip)
            for active in self.screen.active_bindings.values()
            if active.binding.show
        ]
        if now != self._drawn:
            self._drawn = now
            await super().recompose()
