export {}; // sets globalThis.katex
