/** Colours of code. Grammars that most answers do not need are loaded with the first block that does. */

import hljs from "./vendor/highlight.js";

const LONGEST = 200_000; // characters that are highlighted
const NAMES =
  "powershell pwsh ps ps1 psm1,dos bat batch cmd,dockerfile docker containerfile,nginx nginxconf,cmake,julia jl,matlab octave," +
  "scala sbt,haskell hs,dart,elixir ex exs,protobuf proto proto3,latex tex,fsharp fs f#,groovy gradle jenkinsfile," +
  "clojure clj edn,erlang erl,ocaml ml,lisp elisp,fortran f90,x86asm asm nasm,autohotkey ahk,vbscript vbs,properties," +
  "http,apache apacheconf,verilog v sv,vhdl,nix,awk,delphi pascal,glsl hlsl";
/** The names of a grammar by each of them. @type {Map<string, string[]>} */
const GRAMMARS = new Map(NAMES.split(",").map((names) => names.split(" ")).flatMap((names) => names.map((name) => [name, names])));
hljs.registerAliases(["vue", "svelte", "astro"], { languageName: "xml" });
hljs.registerAliases(["hcl", "terraform", "tf"], { languageName: "ini" });

/** Return the HTML of code, if its language is known. @param {string} text @param {string} language */
export function highlighted(text, language) {
  if (!hljs.getLanguage(language) || text.length > LONGEST) return null;
  return hljs.highlight(text, { language, ignoreIllegals: true }).value;
}

/** Colour code whose grammar is not here yet. @param {DocumentFragment} nodes @param {(text: string) => DocumentFragment} pure */
export function addColours(nodes, pure) {
  for (const block of nodes.querySelectorAll(".code")) {
    const name = block.querySelector(".code-head span")?.textContent.toLowerCase() ?? "";
    const [[grammar, ...others] = [], code] = [GRAMMARS.get(name), block.querySelector("code")];
    if (!grammar || !code || hljs.getLanguage(name)) continue;
    import(`./vendor/languages/${grammar}.js`).then(
      ({ default: language }) => {
        hljs.registerLanguage(grammar, language);
        hljs.registerAliases(others, { languageName: grammar });
        code.replaceChildren(pure(highlighted(code.textContent, grammar) ?? ""));
      },
      () => {}, // it stays without colours
    );
  }
}
