"""Reports: one frozen record of a judgement, and the forms it is printed in."""
