// Sets the chosen theme and width before the first paint. A script of its own, as inline ones are forbidden.
{
  const theme = localStorage.getItem("gptoss-theme");
  if (localStorage.getItem("gptoss-folded")) document.documentElement.classList.add("wide");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
}
