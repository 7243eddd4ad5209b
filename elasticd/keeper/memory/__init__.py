"""The memory of a keeper: whose share of which snapshot lies in which buffer."""
