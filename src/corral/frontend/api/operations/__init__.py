"""Operations, routes and views."""
