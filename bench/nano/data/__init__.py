"""Synthetic harmony conversations that gpt-oss-nano is trained and measured on.

`document` says what a conversation is and turns it into tokens, `source` draws the values in it,
`wording` the sentences around them; one module per family of skills builds on these, and `mixture`
draws documents of all kinds. All text is made here: no other text goes into the model.
"""
