// Sets the chosen theme before the first paint. A script of its own, as inline ones are forbidden.
{
  const theme = localStorage.getItem("gptoss-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
