# ruff: noqa: E501
"""Constructs of LaTeX that people and models use: KaTeX's own table of support."""

FORMULAS = {
    # accents and marks
    "hat": r"\hat{x} + \tilde{y} + \bar{z}",
    "widehat": r"\widehat{ABC} + \widetilde{xyz}",
    "overline": r"\overline{AB} + \underline{CD}",
    "overrightarrow": r"\overrightarrow{AB} + \overleftarrow{CD}",
    "underbrace": r"\underbrace{1 + 1 + \cdots + 1}_{n\ \text{times}}",
    "overset": r"a \overset{!}{=} b",
    # fractions and roots
    "frac": r"\frac{1}{2}",
    "quadratic": r"x = \frac{-b \pm \sqrt{b^2-4ac}}{2a}",
    "cfrac": r"\cfrac{1}{1 + \cfrac{1}{1 + \cfrac{1}{x}}}",
    "binom": r"\binom{n}{k} = \frac{n!}{k!\,(n-k)!}",
    "sqrt": r"\sqrt{2} + \sqrt{\frac{a}{b}}",
    "cube_root": r"\sqrt[3]{x + 1}",
    "nested_roots": r"\sqrt{1 + \sqrt{1 + \sqrt{1 + x}}}",
    # scripts and large operators
    "powers": r"x^{2^{n}} + a_{i_j}",
    "sum": r"\sum_{i=1}^{n} i = \frac{n(n+1)}{2}",
    "inline_sum": r"\textstyle\sum_{i=1}^{n} i",
    "integral": r"\int_{-\infty}^{\infty} e^{-x^2}\,dx = \sqrt{\pi}",
    "limit": r"\lim_{x \to 0} \frac{\sin x}{x} = 1",
    "substack": r"\sum_{\substack{0<i<m \\ 0<j<n}} P(i,j)",
    "operatorname": r"\operatorname{softmax}(z)_i",
    "operatorname_limits": r"\operatorname*{arg\,max}_{\theta} L",
    # brackets
    "left_right": r"\left( \frac{a}{b} \right)^2",
    "norm": r"\left\| \frac{x}{y} \right\|_2 + \left| z \right|",
    "big": r"\big( \Big( \bigg( \Bigg( x",
    "middle": r"\left( \frac{a}{b} \middle| c \right)",
    # matrices and alignments
    "matrix": r"\begin{matrix} a & b \\ c & d \end{matrix}",
    "pmatrix": r"\begin{pmatrix} 1 & 0 & 0 \\ 0 & 1 & 0 \\ 0 & 0 & 1 \end{pmatrix}",
    "bmatrix": r"\begin{bmatrix} a_{11} & \cdots & a_{1n} \\ \vdots & \ddots & \vdots \\ a_{m1} & \cdots & a_{mn} \end{bmatrix}",
    "vmatrix": r"\begin{vmatrix} a & b \\ c & d \end{vmatrix} = ad - bc",
    "smallmatrix": r"\bigl(\begin{smallmatrix} a & b \\ c & d \end{smallmatrix}\bigr)",
    "cases": r"f(x) = \begin{cases} x^2 & \text{if } x \ge 0 \\ -x & \text{otherwise} \end{cases}",
    "aligned": r"\begin{aligned} a &= b + c \\ d + e &= f \end{aligned}",
    "align": r"\begin{align*} (a+b)^2 &= a^2 + 2ab + b^2 \\ &\ge 4ab \end{align*}",
    "array": r"\begin{array}{c|c} A & B \\ \hline 1 & 0 \\ 0 & 1 \end{array}",
    "tag": r"E = mc^2 \tag{1}",
    # styles
    "mathbb": r"\mathbb{R} \subset \mathbb{C},\ \mathbb{N} \mathbb{Z} \mathbb{Q}",
    "boldsymbol": r"\boldsymbol{\alpha} + \boldsymbol{x} + \bm{\mu}",
    "mathcal": r"\mathcal{L} \mathcal{F} \mathcal{O}(n)",
    "mathfrak": r"\mathfrak{g} \mathfrak{su}(2)",
    "mathsf": r"\mathsf{A} + \mathtt{code} + \mathit{word}",
    "mathscr": r"\mathscr{H} \mathscr{L}",
    "negated": r"\nleq \ngeq \nsubseteq \nmid \nparallel",
    "text": r"x \text{ is even if } 2 \mid x",
    "color": r"\color{red} x + \textcolor{blue}{y}",
    "sizes": r"\tiny a \small b \normalsize c \large d \Large e",
    # boxes and strikes
    "boxed": r"\boxed{x = 42}",
    "cancel": r"\cancel{x} + \bcancel{y} + \xcancel{z}",
    "sout": r"\sout{abc}",
    "colorbox": r"\colorbox{yellow}{$x$}",
    "rule": r"\rule{2em}{0.1em}",
    # arrows
    "arrows": r"a \to b \mapsto c \Rightarrow d \Leftrightarrow e \implies f \iff g",
    "xrightarrow": r"A \xrightarrow{\text{heat}} B \xleftarrow[under]{over} C",
    # letters and relations
    "greek": r"\alpha \beta \gamma \delta \epsilon \varepsilon \zeta \eta \theta \vartheta",
    "quad": r"a \, b \; c \quad d \qquad e",
    "unicode": "α + β ≤ ∑ x² → ∞ ∈ ℝ",
    # as models write them
    "attention": r"\mathrm{Attention}(Q,K,V) = \mathrm{softmax}\!\left(\frac{QK^\top}{\sqrt{d_k}}\right)V",
    "navier": r"\rho\left(\frac{\partial \mathbf{u}}{\partial t} + \mathbf{u}\cdot\nabla\mathbf{u}\right) = -\nabla p + \mu\nabla^2\mathbf{u}",
    "newcommand": r"\newcommand{\RR}{\mathbb{R}} f: \RR \to \RR",
}
