//! Text in, text out: tokeniser, sampling, the generation loop.
