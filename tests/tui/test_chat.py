"""A conversation in the app, on the real server with the real nano model."""

from tests.tui.running_chat import FRANCE, PARIS, OpenChat


async def test_ask(open_chat: OpenChat) -> None:
    async with open_chat() as chat:
        assert "Nothing you type leaves it" in chat.screen()
        assert await chat.ask(FRANCE) == PARIS
        await chat.until(lambda: PARIS in chat.screen())
        print(chat.screen())
        await chat.until(lambda: "tok/s" in chat.screen())
        assert f"❯ {FRANCE}" in chat.screen()
        assert "▸ reasoned" in chat.screen()
        assert "nano │ medium" in chat.screen()
        assert "/32,768" in chat.screen()
