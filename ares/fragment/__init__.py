"""Large objects as lists of coverable blocks: what a block holds, where a file is cut, which blocks an edit touches (CoARESF over CoBFS)."""
