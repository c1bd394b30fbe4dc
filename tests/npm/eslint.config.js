// Run from the root: tests/npm/node_modules/.bin/eslint --config tests/npm/eslint.config.js gptoss_local/server/web
import js from "@eslint/js";
import globals from "globals";

export default [
  { ignores: ["**/vendor/**", "**/*.d.ts"] },
  js.configs.recommended,
  {
    languageOptions: { globals: globals.browser },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      eqeqeq: "error",
      "no-console": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-restricted-properties": ["error", ...["innerHTML", "outerHTML", "insertAdjacentHTML"].map((property) => ({ property }))],
      "no-restricted-syntax": [
        "error",
        { selector: "Property[key.name='dangerouslySetInnerHTML']", message: "Use nodes that DOMPurify made." },
        { selector: "TemplateElement[value.raw=/dangerouslySetInnerHTML/]", message: "Use nodes that DOMPurify made." },
      ],
      "no-unused-vars": ["error", { argsIgnorePattern: "^_", varsIgnorePattern: "^_" }],
      "no-var": "error",
      "prefer-const": "error",
    },
  },
];
