// Name the language of a translated page, which decides how Chinese and Japanese characters look.
(() => {
  const found = location.pathname.match(/\/(de|zh|ja|hi|es)\/[^/]*$/);
  if (found) document.documentElement.lang = found[1];
})();
