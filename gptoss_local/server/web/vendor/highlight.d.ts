declare const hljs: {
  getLanguage(name: string): object | undefined;
  highlight(code: string, options: { language: string; ignoreIllegals: boolean }): { value: string };
  registerAliases(names: string[], of: { languageName: string }): void;
  registerLanguage(name: string, grammar: any): void;
};
export default hljs;
