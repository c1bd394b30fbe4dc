"""The list of presets, and the form to make or change one."""

from typing import ClassVar, cast, get_args

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widgets import Input, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from gptoss_local.base.errors import GptOssError, UsageError
from gptoss_local.base.printable import printable
from gptoss_local.base.types import Effort
from gptoss_local.talk.history.plain import one_line
from gptoss_local.talk.presets import (
    Preset,
    options_text,
    parse_options,
    presets_path,
    read_presets,
    remove_preset,
    save_preset,
)
from tui.screens.dialog import ConfirmDialog, Dialog
from tui.screens.errors import errors_shown

_NONE = "There are no presets yet. n makes one of this chat's instructions, effort and options."
_MAX_SYSTEM = 200


class PresetsDialog(Dialog[str | None]):
    """Chooses a preset to begin a chat with; `new` are the open chat's settings, for the form."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f12", "dismiss(None)", "Leave"),
        Binding("n", "new", "New preset", id="presets.new"),
        Binding("e", "edit", "Edit", id="presets.edit"),
        Binding("f8", "delete", "Delete", id="presets.delete"),
    ]
    TITLE = "Presets"
    KEYS = "Enter begin a chat   n new   e edit   F8 delete   Esc leave"

    def __init__(self, current: str, new: Preset) -> None:
        super().__init__()
        self.sub_title = str(presets_path())
        self._current = current
        self._new = new
        self._presets: dict[str, Preset] = {}

    def content(self) -> ComposeResult:
        yield OptionList(markup=False)

    def opened(self) -> None:
        self._refill(self._current)

    @on(OptionList.OptionSelected)
    def choose(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._marked())

    def action_new(self) -> None:
        self.app.push_screen(PresetForm("", self._new), self._refill)

    def action_edit(self) -> None:
        if name := self._marked():
            self.app.push_screen(PresetForm(name, self._presets[name]), self._refill)

    def action_delete(self) -> None:
        if name := self._marked():

            def delete(is_sure: bool | None) -> None:
                if is_sure:
                    with errors_shown(self):
                        remove_preset(name)
                    self._refill()

            self.app.push_screen(ConfirmDialog(f"Delete the preset “{name}” for good?"), delete)

    def _marked(self) -> str | None:
        idx = self.query_one(OptionList).highlighted
        return None if idx is None or not self._presets else list(self._presets)[idx]

    def _refill(self, marked: str | None = None) -> None:
        options, why = self.query_one(OptionList), _NONE
        marked = marked or self._marked()
        try:
            self._presets = read_presets()
        except GptOssError as error:
            self._presets, why = {}, f"{error.message}. {error.hint}"
        options.set_options(Option(self._line(*each)) for each in self._presets.items())
        names = list(self._presets)
        if names:
            options.highlighted = names.index(marked) if marked in names else 0
        else:
            options.add_option(Option(why, disabled=True))

    def _line(self, name: str, preset: Preset) -> Content:
        facts = [
            "in use" if name == self._current else "",
            preset.effort or "",
            options_text(preset.options),
            one_line(preset.system, _MAX_SYSTEM),
        ]
        about = " · ".join(filter(None, facts)) or "changes nothing"
        return Content.assemble(printable(name), "\n  ", (about, "dim"))


class PresetForm(Dialog[str | None]):
    """Makes a preset, or changes `name`; returns the name once it is saved, else None."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "leave", "Leave", priority=True),
        Binding("ctrl+s", "save", "Save", priority=True, id="presets.save"),
    ]
    KEYS = "Ctrl-S save   Tab next   Esc leave"
    DEFAULT_CSS = """
    PresetForm {
        Horizontal { height: 1; }
        .name { width: 10; }
        .label { height: 1; margin: 1 0 0 0; }
        TextArea {
            height: 1fr; border: round $text-primary; background: transparent; padding: 0 1;
            &:focus { border: round $text-accent; }
        }
        .error { color: $text-error; height: auto; }
    }
    """

    def __init__(self, name: str, preset: Preset) -> None:
        super().__init__()
        self.title = f"Preset {name}" if name else "New preset"
        self._old_name = name
        self._preset = preset
        self._name_field = Input(name, placeholder="a name of your own")
        self._effort_field = Input(preset.effort or "", placeholder="low, medium or high")
        self._options_field = Input(
            options_text(preset.options), placeholder="temperature 0.7, seed 7"
        )
        self._system_field = TextArea(preset.system, soft_wrap=True, show_line_numbers=False)
        self._error = Static(classes="error", markup=False)

    def content(self) -> ComposeResult:
        fields = {
            "Name": self._name_field,
            "Effort": self._effort_field,
            "Options": self._options_field,
        }
        for label, field in fields.items():
            with Horizontal():
                yield Static(label, classes="name", markup=False)
                yield field
        yield Static("Instructions for the model", classes="label", markup=False)
        yield self._system_field
        yield self._error

    def opened(self) -> None:
        self._system_field.move_cursor(self._system_field.document.end)
        (self._system_field if self._old_name else self._name_field).focus()

    @on(Input.Submitted)
    def go_on(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_next()

    def action_save(self) -> None:
        try:
            name = self._name_field.value.strip()
            save_preset(name, self._filled_in(), instead_of=self._old_name)
        except GptOssError as error:
            self._error.update(f"{error.message}. {error.hint}".strip())
        else:
            self.dismiss(name)

    def action_leave(self) -> None:
        def leave(is_sure: bool | None) -> None:
            if is_sure:
                self.dismiss(None)

        if self._is_changed():
            self.app.push_screen(ConfirmDialog("Leave without saving what you wrote?"), leave)
        else:
            self.dismiss(None)

    def _filled_in(self) -> Preset:
        effort = self._effort_field.value.strip().lower()
        if effort and effort not in get_args(Effort):
            raise UsageError(f"there is no effort '{effort}'", hint="It is low, medium or high.")
        return Preset(
            system=self._system_field.text,
            effort=cast("Effort", effort) if effort else None,
            options=parse_options(self._options_field.value),
        )

    def _is_changed(self) -> bool:
        try:
            return self._name_field.value != self._old_name or self._filled_in() != self._preset
        except GptOssError:
            return True
