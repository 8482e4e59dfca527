// The languages of the site: each has one page, not a site of its own.
(() => {
  // The theme would look for the list of pages of each language, and fail.
  document.querySelectorAll("link[rel=alternate][hreflang]").forEach((link) => link.remove());
  // The language decides how Chinese and Japanese characters look.
  const found = location.pathname.match(/\/(de|zh|ja|hi|es)\/[^/]*$/);
  if (found) document.documentElement.lang = found[1];
})();
