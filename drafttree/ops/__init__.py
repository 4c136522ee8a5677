"""Operations of a step; each folder holds the executable specification and the fast forms."""
