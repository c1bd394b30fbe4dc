export {}; // adds \ce and \pu to katex
