"""Operations on objects: read, write, delete, coverable writes, listings, repair. Pure."""
