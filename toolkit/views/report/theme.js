try {
  const body = parent.document.body;
  const follow = () => {
    const light = body.dataset.jpThemeLight;
    if (light) document.documentElement.dataset.theme = light === "true" ? "light" : "dark";
  };
  follow();
  new parent.MutationObserver(follow).observe(body, { attributes: true, attributeFilter: ["data-jp-theme-light"] });
} catch (error) {}  // a page of another origin: the colours of the system
